#include "base/fork_guard.h"

#include <sys/mman.h>
#include <unistd.h>

namespace dlfs::base {
namespace {
constexpr std::byte kOwned{0x5A};
}

ForkGuard::ForkGuard() {
  if (auto page = Arena::create(1, false); page.ok()) {
    page_ = std::move(page).value();
    wiped_on_fork_ = madvise(page_.bytes().data(), page_.bytes().size(), MADV_WIPEONFORK) == 0;
  }
  rearm();
}

bool ForkGuard::forked() const noexcept {
  return wiped_on_fork_ ? page_.bytes()[0] != kOwned : process_id_ != getpid();
}

void ForkGuard::rearm() noexcept {
  if (wiped_on_fork_) page_.bytes()[0] = kOwned;
  process_id_ = getpid();
}

}  // namespace dlfs::base
