// Notices that this process is a forked child of the one that made the object: one memory read, no system call, no
// global.
#pragma once

#include "base/arena.h"

namespace dlfs::base {

// A page that the kernel wipes in a forked child (MADV_WIPEONFORK, Linux 4.14), else a remembered process id.
// **Thread**: forked() may be called from any thread.
class ForkGuard {
 public:
  ForkGuard();
  bool forked() const noexcept;
  void rearm() noexcept;  // this process owns the object from now on

 private:
  Arena page_;
  bool wiped_on_fork_ = false;
  long process_id_ = 0;
};

}  // namespace dlfs::base
