// The parts of the packer alone: names in a temporary file, reading in a stream.
#include <algorithm>
#include <numeric>

#include "faulty_device.h"
#include "samples.h"
#include "volume/name_spool.h"
#include "volume/sample_check.h"

namespace dlfs::volume {
namespace {

using namespace test;

std::string long_name(std::uint32_t id) {
  std::string name(1 + id * 37 % 4095, static_cast<char>('a' + id % 26));
  const std::string number = std::to_string(id);
  std::copy_n(number.begin(), std::min(number.size(), name.size()), name.begin());
  return name;
}

void expect_in_order(NameSpool& spool, std::uint32_t count) {
  std::uint32_t next = 0;
  const auto visited = spool.for_each([&](SampleId id, std::string_view name) -> Result<bool> {
    EXPECT_EQ(id.value, next);
    EXPECT_EQ(name, long_name(next++));
    return true;
  });
  ASSERT_TRUE(visited.ok()) << visited.error().message;
  EXPECT_EQ(next, count);
}

TEST(NameSpool, gives_names_back_in_the_order_of_id) {
  constexpr std::uint32_t kCount = 30'000;  // some 60 MB: several ranges
  TemporaryDirectory directory;
  std::vector<std::uint32_t> ids(kCount);
  std::iota(ids.begin(), ids.end(), 0u);
  for (const bool shuffled : {false, true}) {
    base::Prng prng(3);
    for (std::uint32_t i = kCount; shuffled && i > 1; --i) std::swap(ids[i - 1], ids[prng.below(i)]);
    auto spool = NameSpool::create({directory / "not-there", directory.path()}).value();
    for (const std::uint32_t id : ids) ASSERT_TRUE(spool.add(SampleId{id}, long_name(id)).ok());
    EXPECT_TRUE(directory.list().empty());  // nobody sees it, and a kill leaves nothing
    expect_in_order(spool, kCount);
    expect_in_order(spool, kCount);
  }
}

TEST(NameSpool, names_the_directory_that_does_not_take_it) {
  TemporaryDirectory directory;
  const auto spool = NameSpool::create({directory / "not-there"});
  ASSERT_FALSE(spool.ok());
  EXPECT_NE(spool.error().message.find("not-there"), std::string::npos);
}

TEST(Utf8, stops_where_text_ends) {
  const auto valid = [](std::string_view text) { return valid_utf8_bytes(std::as_bytes(std::span(text))); };
  EXPECT_EQ(valid(""), 0u);
  EXPECT_EQ(valid("plain ascii, longer than a word"), 31u);
  EXPECT_EQ(valid("ä猫𝄞"), 9u);
  EXPECT_EQ(valid("12345678\xff"), 8u);
  EXPECT_EQ(valid("\xf4\x90\x80\x80"), 0u);  // beyond U+10FFFF
  EXPECT_EQ(valid("\xe0\x80\xaf"), 0u);      // overlong
  EXPECT_EQ(valid("a\xc3"), 1u);             // cut
}

TEST(ReadStream, delivers_in_order_and_goes_on_behind_a_failure) {
  TemporaryDirectory directory;
  const auto bytes = bytes_of(1, 10 * 4096 + 100);
  write_file(directory / "f", bytes);
  for (const std::size_t memory_pieces : {2u, 3u, 16u}) {
    auto inner = block::open_device(directory / "f").value();
    JudgedDevice device(std::move(inner),
                        [](const block::Request& request) { return request.offset_bytes == 3 * 4096 ? EIO : 0; });
    ReadStream stream(device, base::Arena::create(memory_pieces * 4096, false).value(), 4096, 4096, bytes.size(),
                      std::chrono::seconds(5));
    std::uint64_t position = 4096;
    while (!stream.done()) {
      const auto piece = stream.next();
      ASSERT_TRUE(piece.ok());
      ASSERT_EQ(piece->offset_bytes, position);
      ASSERT_EQ(piece->failed, position == 3 * 4096);
      EXPECT_TRUE(piece->failed ||
                  std::ranges::equal(piece->bytes, std::span(bytes).subspan(position, piece->bytes.size())));
      position += piece->bytes.size();
    }
    EXPECT_EQ(position, bytes.size());
  }
}

TEST(ReadStream, gives_up_on_a_device_that_does_not_answer) {
  auto holder = block::open_device("mem:silent?size=1MiB", {.write = true}).value();
  class Silent final : public block::BlockDevice {
   public:
    explicit Silent(block::BlockDevice& like) : like_(like) {}
    const block::Geometry& geometry() const noexcept override { return like_.geometry(); }
    const std::string& url() const noexcept override { return like_.url(); }
    const std::string& notes() const noexcept override { return like_.notes(); }
    const char* engine() const noexcept override { return "silent"; }
    std::size_t submit(std::span<const block::Request> requests) noexcept override { return requests.size(); }
    std::size_t poll(std::span<block::Completion>) noexcept override { return 0; }
    int wait_descriptor() const noexcept override { return like_.wait_descriptor(); }
    std::size_t in_flight() const noexcept override { return 1; }
    void register_memory(std::span<std::byte>) noexcept override {}

   private:
    block::BlockDevice& like_;
  } device(*holder);
  ReadStream stream(device, base::Arena::create(8192, false).value(), 4096, 0, 65536, std::chrono::milliseconds(50));
  const auto piece = stream.next();
  ASSERT_FALSE(piece.ok());
  EXPECT_EQ(piece.error().code, Code::kTimedOut);
  EXPECT_NE(piece.error().message.find("mem:silent"), std::string::npos);
}

}  // namespace
}  // namespace dlfs::volume
