#include "reigen/parallel/join.h"

#include "parallel/gradient_reducer.h"

namespace reigen::parallel {

Join::Join(DataParallelBase& parallel, const JoinOptions& options) : reducer_(parallel.reducer_) {
  reducer_->begin_join(options);
}

Join::~Join() {
  if (!finished_) reducer_->leave_join();
}

void Join::finish(const std::function<void()>& step) {
  if (finished_) {
    throw InvalidArgument(Report{.what = "[join] finish() was called twice",
                                 .expected = "once, when this rank has no more data",
                                 .fix = "make a new Join for the next epoch"});
  }
  finished_ = true;
  struct Leave {
    GradientReducer& reducer;
    ~Leave() { reducer.leave_join(); }
  } leave{*reducer_};
  reducer_->answer_until_all_are_done(step);
}

}  // namespace reigen::parallel
