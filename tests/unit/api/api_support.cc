#include "api_support.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <system_error>

#include "base/mix.h"

namespace dlfs::api_test {

std::string name_of(std::uint32_t id) {
  return "class " + std::to_string(id % 10) + "/\xff\xfe" + std::to_string(id) + ".jpg";
}

std::vector<std::byte> image_of(std::uint32_t id) {
  const std::size_t size = id == kLargeId ? kLargeBytes : id % 11 == 0 ? 0 : 1 + base::mix64(id) % 1500;
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = std::byte(base::mix64((std::uint64_t{id} << 32) + i) & 0xFF);
  return bytes;
}

std::int64_t label_of(std::uint32_t id) { return static_cast<std::int64_t>(id % 10) - 3; }

std::string caption_of(std::uint32_t id) { return "sample " + std::to_string(id); }

std::vector<std::byte> bytes_of(Bytes view) { return {view.begin(), view.end()}; }

Result<void> append_sample(Writer& writer, std::uint32_t id) {
  const auto image = image_of(id);
  const std::int64_t label = label_of(id);
  const std::string caption = caption_of(id);
  const Bytes fields[] = {image, std::as_bytes(std::span(&label, 1)), std::as_bytes(std::span(caption))};
  return writer.append(name_of(id), fields);
}

WriterOptions small_chunks() {
  WriterOptions options;
  options.chunk_bytes = kChunkBytes;
  options.pool_bytes = 1u << 20;
  return options;
}

void pack(const std::string& url, std::uint32_t samples, const WriterOptions& options) {
  auto schema = must(Schema::parse(kSchema));
  schema.attributes.emplace_back("classes", std::string("cat\0dog", 7));
  auto writer = must(Writer::create(url, schema, options));
  for (std::uint32_t id = 0; id < samples; ++id) must(append_sample(writer, id));
  EXPECT_EQ(writer.count(), samples);
  const VolumeInfo info = must(writer.commit());
  EXPECT_EQ(info.samples, samples);
}

::testing::AssertionResult sample_is_right(const Batch& batch, std::size_t i) {
  const std::uint32_t id = batch.ids()[i];
  const std::int64_t label = label_of(id);
  const std::string caption = caption_of(id);
  if (bytes_of(batch.field(i, 0)) != image_of(id)) return ::testing::AssertionFailure() << "image of sample " << id;
  if (!std::ranges::equal(batch.field(i, 1), std::as_bytes(std::span(&label, 1)))) {
    return ::testing::AssertionFailure() << "label of sample " << id;
  }
  if (!std::ranges::equal(batch.field(i, 2), std::as_bytes(std::span(caption)))) {
    return ::testing::AssertionFailure() << "caption of sample " << id;
  }
  return ::testing::AssertionSuccess();
}

PackedVolume::PackedVolume(std::uint32_t samples, Place place) {
  if (place == Place::kFile) {
    url_ = "file:" + path();
  } else {
    static std::atomic<int> next{0};
    url_ = "mem:api_test_" + std::to_string(next++);
    block::OpenOptions options;
    options.write = true;
    memory_ = must(block::open_device(url_ + "?size=64MiB", options));
  }
  pack(url_, samples);
}

void PackedVolume::flip_byte(std::uint64_t offset) const {
  std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ 0x40));
  file.flush();
  ASSERT_TRUE(file.good()) << path();
}

}  // namespace dlfs::api_test
