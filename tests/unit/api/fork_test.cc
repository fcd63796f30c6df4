#include <sys/wait.h>
#include <unistd.h>

#include "api_support.h"

namespace dlfs {
namespace {

using api_test::must;

// Runs `body` in a forked child; its answer must come back as the child's exit status. A child that hangs is ended by
// SIGALRM.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(body());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ApiFork, a_child_goes_on_using_the_volume_and_files_but_not_the_sequence) {
  api_test::PackedVolume packed(100);
  const Volume volume = packed.mount();
  const File large = must(volume.open_id(api_test::kLargeId));
  Sequence sequence = must(volume.sequence({.batch = 10}));
  const auto first = must(sequence.next());
  ASSERT_TRUE(first.has_value());

  const int status = in_child([&] {
    std::vector<std::byte> got(large.size());
    const auto read = large.read(got, 0);
    if (!read.ok() || got != api_test::image_of(api_test::kLargeId)) return 1;
    if (const auto found = volume.find(api_test::name_of(42)); !found.ok() || *found != 42) return 2;
    const std::uint32_t ids[] = {3, 99};
    const auto batch = volume.read(ids);
    if (!batch.ok() || !api_test::sample_is_right(*batch, 0) || !api_test::sample_is_right(*batch, 1)) return 3;
    const auto next = sequence.next();
    if (next.ok() || next.error().code != Code::kForked || next.error().message.empty()) return 4;
    auto own = volume.sequence({.batch = 10});  // its own one works
    if (!own.ok()) return 5;
    const auto drawn = own->next();
    return drawn.ok() && drawn->has_value() && api_test::sample_is_right(**drawn, 0) ? 0 : 6;
  });
  EXPECT_EQ(status, 0) << "the step that failed";

  std::size_t samples = first->size();  // the parent's walk is undisturbed
  while (auto batch = must(sequence.next())) samples += batch->size();
  EXPECT_EQ(samples, 100u);
}

}  // namespace
}  // namespace dlfs
