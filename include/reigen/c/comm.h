// The floors up to comm/ for C, and so for every language that can call C: groups of ranks, their operations, errors as
// codes and text. The contract of each operation (in place, aliasing, deadlines, cost) is that of its namesake in
// reigen/comm/communicator.h; docs/c_api.md has a program and how to build it. P ranks, this one is r.
//
// Errors: what can fail gives a reigen_status, 0 or the exit code of docs/errors.md, and leaves the text in
// reigen_error_message(). Null handles, null outputs and unknown numbers are errors too; no exception leaves.
// Local mistakes (REIGEN_ERROR_INVALID_ARGUMENT) change nothing; after any other error of an operation its group is
// dead: every later call on it fails with REIGEN_ERROR_ABORTED and the first cause.
//
// Ownership: a handle that a function gives through its last argument is yours until its release function; releasing
// NULL does nothing. A handle that was released must not be used. Buffers are yours; those of an asynchronous call must
// stay valid until it has completed. Text that goes in is copied; text that comes out belongs to the handle.
//
// Thread rule: calls of one group must be ordered by the caller; calls of two groups may run at the same time.
// reigen_abort and the functions of reigen_work may be called from any thread. The last error is each thread's own.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// NOLINTBEGIN(readability-identifier-naming): the names of C carry their prefix
typedef struct reigen_comm reigen_comm;      // a rank's place in a group
typedef struct reigen_work reigen_work;      // an asynchronous operation
typedef struct reigen_memory reigen_memory;  // memory that every rank of this machine can reach

// Numbers never change; the types are int so that an unknown number is an error and not undefined.
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

// What the caller can do about it, finer than the code (docs/errors.md).
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
size_t reigen_type_size(reigen_type type);  // in bytes; 0: no such type

// Of the last function that failed on this thread; a success leaves them. The text says what, got, expected, fix, and
// is valid until the next failure on this thread; "" when there was none.
const char* reigen_error_message(void);
reigen_error reigen_error_kind(void);
int reigen_error_rank(void);  // the lost rank of REIGEN_ERROR_PEER_LOST, else -1

// Options: fill them with their function first, `bytes` being sizeof of the struct, then change what you want. A later
// version may add members at the end; programs that were built before it go on to work. NULL for text: the default.
typedef struct reigen_init_options {
  size_t struct_size;
  const char* name;     // "world"
  const char* backend;  // "auto", "self", "shared_memory"; NULL: REIGEN_COMM_BACKEND, else "auto"
  int64_t timeout_ms;   // 0: REIGEN_TIMEOUT, else 10 minutes
  int keep_memory;      // 1: freed memory stays in the process (reigen/runtime/init.h)
  const char* network;  // between machines: "tcp", "mpi"; NULL: REIGEN_COMM_NETWORK, else "tcp"
  int segments;         // over tcp, into how many pieces what can be cut is cut; 0: REIGEN_COMM_SEGMENTS, else by size
  int connections;      // over tcp, sockets for a large message; 0: REIGEN_COMM_CONNECTIONS, else 1
} reigen_init_options;

typedef struct reigen_comm_options {
  size_t struct_size;
  int rank;             // 0
  int size;             // 1
  const char* store;    // where the ranks meet, in a job of one: NULL. The path of a file that all can reach, new for
                        // each job, or tcp://host:port, where rank 0 serves: one group at a time has that port
  const char* name;     // "world"; two groups that meet in one file need two names
  const char* backend;  // as above
  int64_t join_timeout_ms;       // 60 s, for all ranks to come
  int64_t report_after_ms;       // 30 s: a live rank keeps the others waiting, say so
  int64_t timeout_ms;            // 10 minutes: ... and end it
  int64_t heartbeat_timeout_ms;  // 10 s: no sign of life
  const char* network;           // as above
  int segments;                  // 0: by size
  int connections;               // 1
} reigen_comm_options;

typedef struct reigen_call_options {
  size_t struct_size;
  reigen_work** work;  // not NULL: the call is asynchronous, and its handle comes here
  int only_caller;     // 0: the progress thread moves it on too; 1: only reigen_poll and reigen_work_wait do
  const char* tag;     // in every error, and compared between ranks; at most 47 characters
  double factor;       // 1; sums of floats: this rank's input is multiplied by it
} reigen_call_options;

reigen_status reigen_init_options_default(reigen_init_options* options, size_t bytes);
reigen_status reigen_comm_options_default(reigen_comm_options* options, size_t bytes);
reigen_status reigen_call_options_default(reigen_call_options* options, size_t bytes);

// Who am I, from the launcher (reigen run, torchrun, srun, mpirun; alone: one rank). Blocks until all ranks are there.
reigen_status reigen_init(const reigen_init_options* options, reigen_comm** comm);
// A group from its parts, without a launcher. Blocks until all ranks are there.
reigen_status reigen_comm_create(const reigen_comm_options* options, reigen_comm** comm);
// A new group of the ranks that give the same colour, in the order of (key, rank); NULL for a negative colour.
reigen_status reigen_split(reigen_comm* comm, int color, int key, reigen_comm** part);
// Ends the group for everybody: pending and later calls fail with this cause on every rank.
reigen_status reigen_abort(reigen_comm* comm, const char* cause);
// Leaves the group; finishes what is pending, for two seconds at most. Memory and work handles stay good.
void reigen_comm_release(reigen_comm* comm);

int reigen_rank(const reigen_comm* comm);             // -1 for NULL
int reigen_size(const reigen_comm* comm);             // -1 for NULL
const char* reigen_name(const reigen_comm* comm);     // NULL for NULL
const char* reigen_backend(const reigen_comm* comm);  // NULL for NULL

// Zeroed, aligned to 64 bytes; operations on it copy nothing. May outlive the group. REIGEN_OS_RESOURCE: no more.
reigen_status reigen_allocate(reigen_comm* comm, size_t bytes, reigen_memory** memory);
void* reigen_memory_data(const reigen_memory* memory);  // NULL for NULL
void reigen_memory_release(reigen_memory* memory);

// The operations. `options` may be NULL: blocking, no tag, factor 1. Counts are elements.

// output[i] = op over ranks of input[i], i < count
reigen_status reigen_all_reduce(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                                reigen_op op, const reigen_call_options* options);
// data = data of root
reigen_status reigen_broadcast(reigen_comm* comm, void* data, size_t count, reigen_type type, int root,
                               const reigen_call_options* options);
// output[q·count + i] = input[i] of rank q
reigen_status reigen_all_gather(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                                const reigen_call_options* options);
// output[i] = op over ranks of input[r·count + i]
reigen_status reigen_reduce_scatter(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                                    reigen_op op, const reigen_call_options* options);
// output[i] on root = op over ranks of input[i]; elsewhere output may be NULL
reigen_status reigen_reduce(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                            reigen_op op, int root, const reigen_call_options* options);
// output[q·count + i] on root = input[i] of rank q; elsewhere output may be NULL
reigen_status reigen_gather(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                            int root, const reigen_call_options* options);
// output[i] = input[r·count + i] of root; elsewhere input may be NULL
reigen_status reigen_scatter(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                             int root, const reigen_call_options* options);
// output[q·count + i] = input[r·count + i] of rank q
reigen_status reigen_all_to_all(reigen_comm* comm, const void* input, void* output, size_t count, reigen_type type,
                                const reigen_call_options* options);
// Returns when every rank has called it.
reigen_status reigen_barrier(reigen_comm* comm, const reigen_call_options* options);

// As their namesakes, with blocks of counts[q] elements for rank q, one after the other; P counts, the same everywhere.
reigen_status reigen_all_gather_v(reigen_comm* comm, const void* input, void* output, const size_t* counts,
                                  reigen_type type, const reigen_call_options* options);
reigen_status reigen_reduce_scatter_v(reigen_comm* comm, const void* input, void* output, const size_t* counts,
                                      reigen_type type, reigen_op op, const reigen_call_options* options);
reigen_status reigen_gather_v(reigen_comm* comm, const void* input, void* output, const size_t* counts,
                              reigen_type type, int root, const reigen_call_options* options);
reigen_status reigen_scatter_v(reigen_comm* comm, const void* input, void* output, const size_t* counts,
                               reigen_type type, int root, const reigen_call_options* options);
// leaves[q] elements go to rank q, arrives[q] come from it: arrives[q] here is leaves[r] there.
reigen_status reigen_all_to_all_v(reigen_comm* comm, const void* input, const size_t* leaves, void* output,
                                  const size_t* arrives, reigen_type type, const reigen_call_options* options);

// data on rank `from` = data on rank `to`: the n-th send from one rank to another meets the n-th recv. A send of more
// than 1 KiB may wait for its recv: an exchange needs asynchronous calls, or a group of calls.
reigen_status reigen_send(reigen_comm* comm, const void* data, size_t count, reigen_type type, int to,
                          const reigen_call_options* options);
reigen_status reigen_recv(reigen_comm* comm, void* data, size_t count, reigen_type type, int from,
                          const reigen_call_options* options);

// Calls between the two are only collected; ranks meet for all of them at reigen_group_end, and none waits for another.
// An unknown type or reduction, or counts that are NULL, is told by the call itself, which is left out then; what else
// is wrong with a collected call is told by reigen_group_end, and none of them runs. Memory of collected calls must
// stay until then. Their handles may be waited for after it; each is complete when all of them are. Of its options,
// `work` and `only_caller` count for all.
reigen_status reigen_group_begin(reigen_comm* comm);
reigen_status reigen_group_end(reigen_comm* comm, const reigen_call_options* options);

// Moves asynchronous operations on as far as they go without waiting.
reigen_status reigen_poll(reigen_comm* comm);

// Waits for as long as the group allows (timeout_ms < 0), or fails with REIGEN_ERROR_TIMEOUT after timeout_ms; as long
// as reigen_work_is_completed gives 0 the operation goes on then, and may be waited for again.
reigen_status reigen_work_wait(reigen_work* work, int64_t timeout_ms);
int reigen_work_is_completed(const reigen_work* work);  // 1: completed or failed, 0: not yet, -1 for NULL
void reigen_work_release(reigen_work* work);            // an operation that has not completed goes on
// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}
#endif
