#!/bin/bash
#SBATCH --job-name=one_node
#SBATCH --nodes=1
#SBATCH --gres=gpu:4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=24
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
#SBATCH --output=%x-%j.out

# ResNet-50 on ImageNet. one_gpu.sh, one_node.sh and sixteen_nodes.sh differ only in their #SBATCH lines.
#
#   REIGEN_DATA_PATH=$SCRATCH/imagenet sbatch --account=ME one_gpu.sh        the folder that `prepare` has written
#
# Each value below is a default: a variable of the same name wins. Every other option of `reigen train resnet50 --help`
# has a variable too: REIGEN_TRAIN_PRECISION=bf16, REIGEN_CHECKPOINT_MONITOR=test_loss. A job on machines without GPUs
# trains on their CPUs.
set -euo pipefail
: "${REIGEN_DATA_PATH=imagenet}"
: "${REIGEN_RUN_PRESET=goyal}" # 90 epochs; the rate grows with the batch
: "${REIGEN_TRAIN_GLOBAL_BATCH=$((128 * SLURM_NNODES * SLURM_NTASKS_PER_NODE))}" # 128 photos a rank: 8192 on 64 GPUs
: "${REIGEN_TRAIN_DEVICE=auto}"
: "${REIGEN_CHECKPOINT_EVERY=1 epoch}"
: "${REIGEN_RUN_DIR=runs/$SLURM_JOB_NAME-$SLURM_JOB_ID}"
export REIGEN_DATA_PATH REIGEN_RUN_PRESET REIGEN_TRAIN_GLOBAL_BATCH REIGEN_TRAIN_DEVICE
export REIGEN_CHECKPOINT_EVERY REIGEN_RUN_DIR

# srun does not take the number of cores of a task from sbatch by itself.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
time srun reigen train resnet50
