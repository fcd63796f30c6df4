#include "api/impl.h"
#include "base/check.h"
#include "base/mix.h"

namespace dlfs {

Writer::Writer(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&&) noexcept = default;
Writer::~Writer() = default;

Result<Writer> Writer::create(std::string_view url, const Schema& schema, const WriterOptions& options) {
  DLFS_TRY_ASSIGN(const layout::Schema native_schema, api::to_layout(schema));
  volume::WriterOptions native;
  native.chunk_bytes = options.chunk_bytes;
  native.overwrite = options.overwrite;
  native.shuffle = options.shuffle;
  native.pool_bytes = options.pool_bytes;
  native.seed = options.seed;
  native.names = options.names;
  DLFS_TRY_ASSIGN(auto writer, volume::Writer::create(url, native_schema, native));
  return Writer(std::make_unique<Impl>(Impl{std::move(writer), std::string(url)}));
}

Result<void> Writer::append(std::string_view name, std::span<const Bytes> fields) {
  return impl_->writer->append(name, fields);
}

Result<void> Writer::append_at(std::uint32_t id, std::string_view name, std::span<const Bytes> fields) {
  return impl_->writer->append_at(SampleId{id}, name, fields);
}

Result<void> Writer::append_stream_at(std::uint32_t id, std::string_view name, std::span<const Bytes> other_fields,
                                      std::uint64_t length,
                                      const std::function<Result<void>(std::span<std::byte>)>& source) {
  return impl_->writer->append_stream_at(SampleId{id}, name, other_fields, length, source);
}

std::uint64_t Writer::count() const noexcept { return impl_->writer->count(); }

Result<VolumeInfo> Writer::commit() {
  DLFS_TRY_ASSIGN(const layout::Superblock superblock, impl_->writer->commit());
  VolumeInfo info;
  api::fill_info(superblock, info);
  info.url = impl_->url;
  return info;
}

std::uint32_t placement(std::uint32_t position, std::uint32_t n, std::uint64_t seed) noexcept {
  DLFS_CHECK(position < n);
  const order::Permutation permutation(
      n, base::mix64(seed ^ 0x706C6163656D656Eu));  // "placemen": apart from any epoch's key
  return static_cast<std::uint32_t>(permutation(position));
}

const char* version() noexcept { return DLFS_VERSION; }

}  // namespace dlfs
