// The communication of Reigen for C, and for every language that can call C: groups of ranks, their operations, and
// errors as codes and text. Each operation has the same contract (in place, aliasing, deadlines, cost) as the function
// of the same name in reigen/comm/communicator.h. docs/c_api.md has an example program and says how to build it. P is
// the number of ranks of the group; r is the number of this rank.
//
// Errors: a function that can fail returns a reigen_status, which is 0 or an exit code of docs/errors.md.
// reigen_error_message() returns the text of the error. A NULL handle, a NULL output and a number that is not one of
// the constants below are errors too. No exception leaves a function. A call with a wrong argument
// (REIGEN_ERROR_INVALID_ARGUMENT) changes nothing in its group. If an operation fails with another error after it has
// begun, its group has ended: every later call of this group fails with REIGEN_ERROR_ABORTED and the text of the first
// cause.
//
// Ownership: a handle that a function returns through its last argument belongs to the caller until the caller passes
// it to its release function. Releasing NULL does nothing. A released handle must not be used. Buffers belong to the
// caller; the buffers of an asynchronous call must stay valid until the call has completed. A function copies every
// text that the caller passes. A text that a function of a handle returns is valid until the handle is released.
//
// Thread rule: a rank makes the calls of one group one after the other, in the same order as all other ranks. It may
// make calls of different groups at the same time. Any thread may call reigen_abort and the functions that take a
// reigen_work. Each thread has its own last error.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// NOLINTBEGIN(readability-identifier-naming): names in C have a prefix, because C has no namespaces
typedef struct reigen_comm reigen_comm;      // a rank's handle of a group
typedef struct reigen_work reigen_work;      // an asynchronous operation
typedef struct reigen_memory reigen_memory;  // memory that every rank on this machine can access

// The numbers of all constants never change. The types are int and not enum, so that a number without a constant is an
// error and not undefined behaviour.
typedef int reigen_status;
enum {
  REIGEN_OK = 0,
  REIGEN_BAD_DATA = 65,
  REIGEN_INPUT_MISSING = 66,
  REIGEN_UNAVAILABLE = 69,
  REIGEN_BUG = 70,
  REIGEN_OS_RESOURCE = 71,
  REIGEN_OUTPUT_LOCKED = 73,
  REIGEN_IO = 74,
  REIGEN_JOB_MISMATCH = 76,
  REIGEN_PERMISSION = 77,
  REIGEN_CONFIGURATION = 78,
  REIGEN_PEER_LOST = 79
};

// The kind of an error. It tells a caller more exactly how to react than the exit code does (docs/errors.md).
typedef int reigen_error;
enum {
  REIGEN_ERROR_NONE = 0,
  REIGEN_ERROR_INVALID_ARGUMENT = 1,
  REIGEN_ERROR_TIMEOUT = 2,
  REIGEN_ERROR_PEER_LOST = 3,
  REIGEN_ERROR_MISMATCH = 4,
  REIGEN_ERROR_ABORTED = 5,
  REIGEN_ERROR_IO = 6,
  REIGEN_ERROR_BACKEND = 7,
  REIGEN_ERROR_OTHER = 8
};

typedef int reigen_type;
enum {
  REIGEN_INT8 = 0,
  REIGEN_UINT8 = 1,
  REIGEN_INT16 = 2,
  REIGEN_INT32 = 3,
  REIGEN_INT64 = 4,
  REIGEN_FLOAT16 = 5,
  REIGEN_BFLOAT16 = 6,
  REIGEN_FLOAT32 = 7,
  REIGEN_FLOAT64 = 8,
  REIGEN_BOOL = 9
};

typedef int reigen_op;
enum {
  REIGEN_SUM = 0,
  REIGEN_AVG = 1,
  REIGEN_PROD = 2,
  REIGEN_MIN = 3,
  REIGEN_MAX = 4,
  REIGEN_BAND = 5,
  REIGEN_BOR = 6,
  REIGEN_BXOR = 7
};

const char* reigen_version(void);           // "0.1.0"
size_t reigen_type_size(reigen_type type);  // bytes of one element; 0 if there is no such type

// The text and the kind of the last error on this thread, and the rank that the error names. A call that succeeds does
// not change them. The text says what happened, which values were got and expected, and a fix. It is valid until the
// next error on this thread. The text is "" as long as no function has failed on this thread.
const char* reigen_error_message(void);
reigen_error reigen_error_kind(void);
int reigen_error_rank(void);  // the lost rank of REIGEN_ERROR_PEER_LOST, else -1

// Options: first call reigen_NAME_options_default() with the sizeof of the struct as `bytes`; it sets struct_size and
// all defaults. Then change members. A later version of Reigen may add members at the end of a struct; programs that
// were built with an earlier version continue to work. For a text, NULL means the default. The comment of each member
// names its default. Some defaults (NULL or 0) stand for the value of an environment variable. If this variable is not
// set, they stand for a fixed value.
typedef struct reigen_init_options {
  size_t struct_size;
  const char* name;  // default "world"
  // Default: NULL, which means the variable REIGEN_COMM_BACKEND, or "auto" without it. docs/backends.md has all names.
  const char* backend;
  // Default: 0, which means the variable REIGEN_TIMEOUT, or 10 minutes without it. A longer wait for a live rank ends
  // the group.
  int64_t timeout_ms;
  int keep_memory;  // default 1, which means that freed memory stays in the process (reigen/runtime/init.h)
  // The backend between machines, "tcp" or "mpi". Default: NULL, which means REIGEN_COMM_NETWORK, or "tcp" without it.
  const char* network;
  // The number of pieces into which "tcp" cuts transfers. Default: 0, which means the variable REIGEN_COMM_SEGMENTS.
  // Without this variable the size of the transfer decides.
  int segments;
  // The number of sockets of "tcp" that share a large message. Default: 0, which means the variable
  // REIGEN_COMM_CONNECTIONS, or 1 without it.
  int connections;
  // The GPU on whose memory calls work too: "cuda" (the GPU with the rank's number on its machine), "cuda:0", "cuda:1".
  // Default: NULL, which means no GPU.
  const char* device;
  const char* device_backend;  // the backend for memory of the GPU, "cuda_ipc" or "nccl"; default: NULL, the better one
} reigen_init_options;

typedef struct reigen_comm_options {
  size_t struct_size;
  int rank;  // default 0
  int size;  // default 1
  // The store through which the ranks find each other. Either the path of a file that all ranks can reach and that is
  // new for each job, or tcp://host:port, where rank 0 serves the store for one group at a time. Default: NULL, which
  // only a group of one rank may use.
  const char* store;
  const char* name;              // default "world"; two groups that use the same file as store need different names
  const char* backend;           // default "auto"; the names are those of reigen_init_options
  int64_t join_timeout_ms;       // default 60 s; the longest wait until all ranks have joined
  int64_t report_after_ms;       // default 30 s; after a longer wait for a live rank, a warning names that rank
  int64_t timeout_ms;            // default 10 minutes; a longer wait for a live rank ends the group
  int64_t heartbeat_timeout_ms;  // default 10 s; a rank that sends no heartbeat for this time counts as lost
  const char* network;           // default "tcp"; reigen_init_options explains this and the next two members
  int segments;                  // default 0, which means that the size of a transfer decides
  int connections;               // default 1
  const char* device;            // default: NULL; as in reigen_init_options
  const char* device_backend;    // default: NULL; as in reigen_init_options
} reigen_comm_options;

typedef struct reigen_call_options {
  size_t struct_size;
  // Default: NULL, with which the call blocks. With another value the call is asynchronous, and *work becomes its
  // handle.
  reigen_work** work;
  // Default: 0, with which the rank's progress thread also advances the call. With 1 only reigen_poll and
  // reigen_work_wait advance it.
  int only_caller;
  // Default: NULL, which means no tag. A tag has at most 47 characters. Errors of the call show the tag, and the ranks
  // compare it.
  const char* tag;
  double factor;  // default 1; this rank's input is multiplied by this factor; only for sums of floats
  // Only for memory of the group's GPU: a cudaStream_t. The call begins after the work that is on this stream now.
  // Default: NULL, which means the GPU's default stream.
  void* stream;
} reigen_call_options;

reigen_status reigen_init_options_default(reigen_init_options* options, size_t bytes);
reigen_status reigen_comm_options_default(reigen_comm_options* options, size_t bytes);
reigen_status reigen_call_options_default(reigen_call_options* options, size_t bytes);

// Creates the group of all ranks of the job. Rank and size come from the launcher (reigen run, torchrun, srun, mpirun);
// without a launcher the group has one rank. Blocks until all ranks have joined.
reigen_status reigen_init(const reigen_init_options* options, reigen_comm** comm);
// Creates a group without a launcher: the options give rank, size and store. Blocks until all ranks have joined.
reigen_status reigen_comm_create(const reigen_comm_options* options, reigen_comm** comm);
// The ranks of `comm` that pass the same `color` form a new group, in which they are ordered by (key, rank). A rank
// that passes a negative `color` gets NULL.
reigen_status reigen_split(reigen_comm* comm, int color, int key, reigen_comm** part);
// Ends the group, and all groups that are related to it by reigen_split, on all ranks. Pending and later calls of every
// rank fail with this cause.
reigen_status reigen_abort(reigen_comm* comm, const char* cause);
// Waits for pending operations, two seconds at most, and then leaves the group. Handles of memory and of asynchronous
// calls remain valid.
void reigen_comm_release(reigen_comm* comm);

int reigen_rank(const reigen_comm* comm);             // -1 if comm is NULL
int reigen_size(const reigen_comm* comm);             // -1 if comm is NULL
const char* reigen_name(const reigen_comm* comm);     // NULL if comm is NULL
const char* reigen_backend(const reigen_comm* comm);  // NULL if comm is NULL
// The group's GPU and the backend for its memory: "cuda:0" and "cuda_ipc". Without a GPU "cpu" and "". NULL if comm is
// NULL.
const char* reigen_device(const reigen_comm* comm);
const char* reigen_device_backend(const reigen_comm* comm);

// Allocates zeroed memory, aligned to 64 bytes. Operations on this memory make no extra copies. The memory may outlive
// the group. Fails with REIGEN_OS_RESOURCE when no memory is left.
reigen_status reigen_allocate(reigen_comm* comm, size_t bytes, reigen_memory** memory);
// Does the same in the memory of the group's GPU. When the memory is released, the host waits for the GPU.
reigen_status reigen_allocate_on_device(reigen_comm* comm, size_t bytes, reigen_memory** memory);
void* reigen_memory_data(const reigen_memory* memory);  // NULL if memory is NULL
void reigen_memory_release(reigen_memory* memory);

// The operations. P is the number of ranks of the group, and r is the number of this rank. If `options` is NULL, the
// call blocks, has no tag, and has the factor 1. Counts are numbers of elements.

// output[i] = op over the input[i] of all ranks, i < count
reigen_status reigen_all_reduce(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                                reigen_op op, const reigen_call_options* options);
// data on every rank = data on root
reigen_status reigen_broadcast(reigen_comm* comm, void* data, size_t count, reigen_type type, int root,
                               const reigen_call_options* options);
// output[q·count + i] = input[i] of rank q
reigen_status reigen_all_gather(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                                const reigen_call_options* options);
// output[i] = op over the input[r·count + i] of all ranks
reigen_status reigen_reduce_scatter(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                                    reigen_op op, const reigen_call_options* options);
// output[i] on root = op over the input[i] of all ranks; on other ranks output may be NULL
reigen_status reigen_reduce(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                            reigen_op op, int root, const reigen_call_options* options);
// output[q·count + i] on root = input[i] of rank q; on other ranks output may be NULL
reigen_status reigen_gather(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                            int root, const reigen_call_options* options);
// output[i] = input[r·count + i] of root; on other ranks input may be NULL
reigen_status reigen_scatter(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                             int root, const reigen_call_options* options);
// output[q·count + i] = input[r·count + i] of rank q
reigen_status reigen_all_to_all(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                                const reigen_call_options* options);
// Returns when every rank has called reigen_barrier.
reigen_status reigen_barrier(reigen_comm* comm, const reigen_call_options* options);

// reigen_NAME_v is reigen_NAME with blocks of counts[q] elements for rank q, one after the other. `counts` has P
// elements and is the same on every rank.
reigen_status reigen_all_gather_v(reigen_comm* comm, const void* input, void* output, const size_t* counts,
                                  reigen_type type, const reigen_call_options* options);
reigen_status reigen_reduce_scatter_v(reigen_comm* comm, const void* input, void* output, const size_t* counts,
                                      reigen_type type, reigen_op op, const reigen_call_options* options);
reigen_status reigen_gather_v(reigen_comm* comm, const void* input, void* output, const size_t* counts,
                              reigen_type type, int root, const reigen_call_options* options);
reigen_status reigen_scatter_v(reigen_comm* comm, const void* input, void* output, const size_t* counts,
                               reigen_type type, int root, const reigen_call_options* options);
// leaves[q] elements go to rank q, and arrives[q] elements come from rank q. arrives[q] on rank r must equal leaves[r]
// on rank q.
reigen_status reigen_all_to_all_v(reigen_comm* comm, const void* input, const size_t* leaves, void* output,
                                  const size_t* arrives, reigen_type type, const reigen_call_options* options);

// The data that reigen_recv writes on rank `to` are the data that reigen_send reads on rank `from`. The n-th send from
// rank A to rank B matches the n-th recv on rank B from rank A. A send of more than 1 KiB may wait for its recv. Ranks
// that exchange such data therefore use asynchronous calls, or collect the calls between reigen_group_begin and
// reigen_group_end.
reigen_status reigen_send(reigen_comm* comm, const void* data, size_t count, reigen_type type, int to,
                          const reigen_call_options* options);
reigen_status reigen_recv(reigen_comm* comm, void* data, size_t count, reigen_type type, int from,
                          const reigen_call_options* options);

// Calls between reigen_group_begin and reigen_group_end are only collected. reigen_group_end makes all of them
// together, so that no collected call waits for another one. A call with an unknown type or reduction, or with NULL for
// counts, fails at once and is not collected. Any other mistake in a collected call makes reigen_group_end fail, and
// none of the calls runs. The buffers of the collected calls must remain valid until the calls are complete. After
// reigen_group_end the program may wait for the handles of the calls; each handle is complete when all calls are
// complete. The options `work` and `only_caller` of reigen_group_end apply to all collected calls together.
reigen_status reigen_group_begin(reigen_comm* comm);
reigen_status reigen_group_end(reigen_comm* comm, const reigen_call_options* options);

// Advances asynchronous operations as far as possible without waiting.
reigen_status reigen_poll(reigen_comm* comm);

// Waits until the call is complete, but at most timeout_ms milliseconds. If timeout_ms < 0, only the group's timeout
// limits the wait. Fails with REIGEN_ERROR_TIMEOUT when this time has passed. If reigen_work_is_completed returns 0
// after this failure, the operation continues, and the program may wait for it again.
reigen_status reigen_work_wait(reigen_work* work, int64_t timeout_ms);
// For a call on memory of the group's GPU: work that is put on `stream` (a cudaStream_t; NULL: the default stream)
// after this function runs after the call. The host does not wait for the GPU. If the call fails later, the group's
// next call fails.
reigen_status reigen_work_wait_on(reigen_work* work, void* stream);
int reigen_work_is_completed(const reigen_work* work);  // 1 if it has completed or failed, 0 if not, -1 if work is NULL
void reigen_work_release(reigen_work* work);            // an operation that is not complete continues
// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}
#endif
