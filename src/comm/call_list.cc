#include "reigen/comm/call_list.h"

#include "comm/call/request.h"

namespace reigen::comm {

CallList::CallList() = default;
CallList::~CallList() = default;
CallList::CallList(CallList&& other) noexcept = default;
CallList& CallList::operator=(CallList&& other) noexcept = default;
CallList::CallList(const CallList& other) = default;
CallList& CallList::operator=(const CallList& other) = default;

std::size_t CallList::size() const { return calls_.size(); }

void CallList::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                          const CallOptions& options) {
  calls_.push_back(request::with(request::all_reduce(input, output, count, type, op), options));
}

void CallList::broadcast(void* data, std::size_t count, DataType type, int root, const CallOptions& options) {
  calls_.push_back(request::with(request::broadcast(data, count, type, root), options));
}

void CallList::all_gather(const void* input, void* output, std::size_t count, DataType type,
                          const CallOptions& options) {
  calls_.push_back(request::with(request::all_gather(input, output, count, type), options));
}

void CallList::reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                              const CallOptions& options) {
  calls_.push_back(request::with(request::reduce_scatter(input, output, count, type, op), options));
}

void CallList::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
                      const CallOptions& options) {
  calls_.push_back(request::with(request::reduce(input, output, count, type, op, root), options));
}

void CallList::gather(const void* input, void* output, std::size_t count, DataType type, int root,
                      const CallOptions& options) {
  calls_.push_back(request::with(request::gather(input, output, count, type, root), options));
}

void CallList::scatter(const void* input, void* output, std::size_t count, DataType type, int root,
                       const CallOptions& options) {
  calls_.push_back(request::with(request::scatter(input, output, count, type, root), options));
}

void CallList::all_to_all(const void* input, void* output, std::size_t count, DataType type,
                          const CallOptions& options) {
  calls_.push_back(request::with(request::all_to_all(input, output, count, type), options));
}

void CallList::all_gather_v(const void* input, void* output, Counts counts, DataType type, const CallOptions& options) {
  calls_.push_back(request::with(request::all_gather_v(input, output, counts, type), options));
}

void CallList::reduce_scatter_v(const void* input, void* output, Counts counts, DataType type, ReduceOp op,
                                const CallOptions& options) {
  calls_.push_back(request::with(request::reduce_scatter_v(input, output, counts, type, op), options));
}

void CallList::gather_v(const void* input, void* output, Counts counts, DataType type, int root,
                        const CallOptions& options) {
  calls_.push_back(request::with(request::gather_v(input, output, counts, type, root), options));
}

void CallList::scatter_v(const void* input, void* output, Counts counts, DataType type, int root,
                         const CallOptions& options) {
  calls_.push_back(request::with(request::scatter_v(input, output, counts, type, root), options));
}

void CallList::all_to_all_v(const void* input, Counts leaves, void* output, Counts arrives, DataType type,
                            const CallOptions& options) {
  calls_.push_back(request::with(request::all_to_all_v(input, leaves, output, arrives, type), options));
}

void CallList::send(const void* data, std::size_t count, DataType type, int to, const CallOptions& options) {
  calls_.push_back(request::with(request::send(data, count, type, to), options));
}

void CallList::recv(void* data, std::size_t count, DataType type, int from, const CallOptions& options) {
  calls_.push_back(request::with(request::recv(data, count, type, from), options));
}

void CallList::barrier(const CallOptions& options) { calls_.push_back(request::with(request::barrier(), options)); }

}  // namespace reigen::comm
