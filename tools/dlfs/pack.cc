// dlfs pack: a folder of files into a volume.
#include <sys/stat.h>

#include <array>
#include <memory>

#include "base/endian.h"
#include "base/error.h"
#include "base/try.h"
#include "block/device.h"
#include "block/url.h"
#include "command.h"
#include "ingest/chunk_size.h"
#include "ingest/read_ahead.h"
#include "ingest/source_reader.h"
#include "output.h"
#include "progress.h"
#include "signals.h"
#include "units.h"

namespace dlfs::tools {
namespace {

constexpr std::size_t kListedLeftOut = 1000;  // of --json

struct PackOptions {
  std::string source, volume, field = "image";
  std::uint64_t chunk_bytes = 0, seed = 0;  // 0: what suits the sizes of the files
  bool no_label = false, force = false, no_shuffle = false, skip_errors = false, quiet = false;
};

// The path of a destination that is a file or may become one; empty for block devices and other URLs.
std::string file_path(std::string_view url) {
  if (url.starts_with("file:")) {
    url.remove_prefix(5);
  } else if (url.starts_with("mem:") || url.find("://") != std::string_view::npos) {
    return {};
  }
  struct stat status{};
  const std::string path(url);
  return stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) ? std::string() : path;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (path.empty() || slash == std::string::npos) return path.empty() ? "" : ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// One run of the command: scans, writes, commits.
class Pack {
 public:
  Pack(const PackOptions& options, bool json)
      : options_(options), json_(json), path_(file_path(options.volume)), quiet_(options.quiet || json) {}
  Result<int> run();

 private:
  Result<ingest::Folder> scan();
  Result<void> check_destination() const;
  Result<void> check_room(const ingest::Folder& folder) const;
  Schema schema(const ingest::Folder* folder) const;
  WriterOptions writer_options() const;
  Result<void> write_placed(const ingest::Folder& folder, Writer& writer);
  Result<void> write_in_order(const ingest::Folder& folder, Writer& writer);
  Result<void> add_placed(const ingest::Folder& folder, Writer& writer, const ingest::LoadedFile& loaded);
  Result<void> add_in_order(const ingest::Folder& folder, Writer& writer, const ingest::LoadedFile& loaded);
  Result<void> stream(const ingest::Folder& folder, Writer& writer, const ingest::LoadedFile& loaded);
  void leave_out(const ingest::LeftOut& entry);
  Result<void> advance(const ingest::Folder& folder, const ingest::SourceFile& file);
  Result<void> report(const VolumeInfo& info) const;
  std::span<const Bytes> fields(const ingest::SourceFile& file, Bytes content);

  const PackOptions& options_;
  const bool json_;
  const std::string path_;
  const bool quiet_;
  std::optional<Progress> progress_;
  std::uint64_t visited_ = 0, visited_bytes_ = 0;  // files read, or left out, so far
  std::uint64_t packed_bytes_ = 0, left_out_ = 0;
  Json listed_ = Json::array();
  std::array<std::byte, 8> label_{};
  std::array<Bytes, 2> values_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Error stopped() {
  return interrupted_error(
      "interrupted: the pack was stopped and the destination is as it was before (a block device is left marked "
      "incomplete)");
}

void Pack::leave_out(const ingest::LeftOut& entry) {
  ++left_out_;
  if (json_ && listed_.size() < kListedLeftOut) {
    Json item;
    put_name(item, entry.name);
    item["why"] = entry.why;
    item["failed"] = entry.failed;
    listed_.push_back(std::move(item));
  }
  if (!json_) progress_->note(fmt::format("dlfs pack: left out '{}': {}", base::escape(entry.name), entry.why));
}

Result<ingest::Folder> Pack::scan() {
  progress_.emplace("listing", quiet_);
  ingest::ScanOptions scan;
  scan.labels = !options_.no_label;
  scan.skip_errors = options_.skip_errors;
  scan.spool_directory = folder_of(path_);
  scan.left_out = [this](const ingest::LeftOut& entry) { leave_out(entry); };
  scan.progress = [this](std::uint64_t files) {
    progress_->update(0, 0, files, 0);
    return interrupted() == 0;
  };
  struct stat status{};
  if (!path_.empty() && stat(path_.c_str(), &status) == 0) scan.exclude = {status.st_dev, status.st_ino};
  return ingest::Folder::scan(options_.source, scan);
}

Schema Pack::schema(const ingest::Folder* folder) const {
  Schema schema;
  schema.fields.push_back({options_.field, Kind::kBytes, {}, {}});
  if (options_.no_label) return schema;
  schema.fields.push_back({"label", Kind::kTensor, "int64", {}});
  if (folder == nullptr) return schema;
  std::string classes;
  for (const std::string& name : folder->classes()) {
    if (!classes.empty()) classes += '\0';
    classes += name;
  }
  schema.attributes.emplace_back("classes", std::move(classes));
  return schema;
}

WriterOptions Pack::writer_options() const {
  WriterOptions writer;
  if (options_.chunk_bytes != 0) writer.chunk_bytes = static_cast<std::uint32_t>(options_.chunk_bytes);
  writer.overwrite = options_.force;
  writer.shuffle = !options_.no_shuffle;
  writer.seed = options_.seed;
  return writer;
}

// Says at once, not after a long listing, that the destination is taken or cannot be written: a writer that is dropped
// leaves no trace of itself. Not for block devices, which a writer marks.
Result<void> Pack::check_destination() const {
  if (path_.empty()) return {};
  DLFS_TRY_ASSIGN(const Writer probe, Writer::create(options_.volume, schema(nullptr), writer_options()));
  return {};
}

// A device is marked incomplete before the first sample is written: what it holds is not given up for samples that
// cannot fit. With --skip-errors fewer may be left than were listed.
Result<void> Pack::check_room(const ingest::Folder& folder) const {
  block::Url url;
  if (auto parsed = block::parse_url(options_.volume); parsed.ok()) url = *parsed;
  struct stat status{};
  if (options_.skip_errors || url.scheme != block::Scheme::kFile || stat(url.path.c_str(), &status) != 0 ||
      !S_ISBLK(status.st_mode)) {
    return {};
  }
  DLFS_TRY_ASSIGN(const auto device, block::open_device(options_.volume));
  const std::uint64_t room = device->geometry().capacity_bytes;
  if (folder.files().total_bytes() <= room) return {};
  return base::make_error(Code::kNoSpace, "'{}' is too small: the files have {} bytes, it has {}; nothing was written",
                          base::escape(options_.volume), folder.files().total_bytes(), room);
}

std::span<const Bytes> Pack::fields(const ingest::SourceFile& file, Bytes content) {
  base::store_le<std::int64_t>(label_.data(), file.label);
  values_ = {content, label_};
  return std::span(values_).first(options_.no_label ? 1 : 2);
}

Result<void> Pack::advance(const ingest::Folder& folder, const ingest::SourceFile& file) {
  ++visited_;
  visited_bytes_ += file.size_bytes;
  progress_->update(visited_bytes_, folder.files().total_bytes(), visited_, folder.files().count());
  if (interrupted() != 0) return stopped();
  return {};
}

Result<void> Pack::stream(const ingest::Folder& folder, Writer& writer, const ingest::LoadedFile& loaded) {
  DLFS_TRY_ASSIGN(ingest::SourceReader reader, ingest::SourceReader::open(folder, loaded.file));
  std::uint64_t left = loaded.file.size_bytes;
  auto source = [&](std::span<std::byte> into) -> Result<void> {
    if (interrupted() != 0) return stopped();
    DLFS_TRY(reader.read(into));
    left -= into.size();
    progress_->update(visited_bytes_ + loaded.file.size_bytes - left, folder.files().total_bytes(), visited_,
                      folder.files().count());
    return left == 0 ? reader.finish() : Result<void>();
  };
  const auto others = fields(loaded.file, {}).subspan(1);
  return writer.append_stream_at(static_cast<std::uint32_t>(loaded.index), loaded.file.name, others,
                                 loaded.file.size_bytes, source);
}

Result<void> Pack::add_placed(const ingest::Folder& folder, Writer& writer, const ingest::LoadedFile& loaded) {
  if (loaded.error) {
    Error error = *loaded.error;
    error.message += " (pack again, or use --skip-errors to leave such files out)";
    return error;
  }
  if (!loaded.whole) return stream(folder, writer, loaded);
  return writer.append_at(static_cast<std::uint32_t>(loaded.index), loaded.file.name,
                          fields(loaded.file, loaded.bytes));
}

// Files are visited in placement order, so that records go straight to their places.
Result<void> Pack::write_placed(const ingest::Folder& folder, Writer& writer) {
  const auto count = static_cast<std::uint32_t>(folder.files().count());
  auto order = [this, count](std::uint64_t position) -> std::uint64_t {
    const auto p = static_cast<std::uint32_t>(position);
    return options_.no_shuffle ? p : placement(p, count, options_.seed);
  };
  ingest::ReadAhead ahead(folder, order);
  while (const ingest::LoadedFile* loaded = ahead.next()) {
    DLFS_TRY(add_placed(folder, writer, *loaded));
    packed_bytes_ += loaded->file.size_bytes;
    DLFS_TRY(advance(folder, loaded->file));
  }
  return {};
}

Result<void> Pack::add_in_order(const ingest::Folder& folder, Writer& writer, const ingest::LoadedFile& loaded) {
  if (loaded.error) return Error(*loaded.error);
  if (loaded.whole) return writer.append(loaded.file.name, fields(loaded.file, loaded.bytes));
  DLFS_TRY_ASSIGN(const auto copy, ingest::MappedCopy::make(folder, loaded.file, folder_of(path_)));
  return writer.append(loaded.file.name, fields(loaded.file, copy.bytes()));
}

// With --skip-errors an id is known only once its file has been read to its end, so files go in source order through
// the writer's shuffle pool, and one that fails leaves no gap.
Result<void> Pack::write_in_order(const ingest::Folder& folder, Writer& writer) {
  ingest::ReadAhead ahead(folder, [](std::uint64_t position) { return position; });
  while (const ingest::LoadedFile* loaded = ahead.next()) {
    Result<void> added = add_in_order(folder, writer, *loaded);
    if (!added.ok() && added.error().code != Code::kSourceChanged) return added;
    if (added.ok()) {
      packed_bytes_ += loaded->file.size_bytes;
    } else {
      leave_out({loaded->file.name, added.error().message, true});
    }
    DLFS_TRY(advance(folder, loaded->file));
  }
  if (writer.count() > 0) return {};
  return base::make_error(Code::kSourceChanged, "none of the files in '{}' could be read",
                          base::escape(options_.source));
}

Result<void> Pack::report(const VolumeInfo& info) const {
  const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double overhead = info.payload_bytes == 0
                              ? 0
                              : 100.0 * static_cast<double>(info.record_bytes + info.padding_bytes) /
                                    static_cast<double>(info.payload_bytes);
  if (json_) {
    return print({{"volume", info.url},
                  {"samples", info.samples},
                  {"source_bytes", packed_bytes_},
                  {"payload_bytes", info.payload_bytes},
                  {"device_bytes", info.device_bytes},
                  {"chunk_bytes", info.chunk_bytes},
                  {"overhead_percent", overhead},
                  {"elapsed_s", elapsed_s},
                  {"bytes_per_s", static_cast<double>(packed_bytes_) / elapsed_s},
                  {"left_out_count", left_out_},
                  {"left_out", listed_}});
  }
  if (options_.quiet) return {};
  Output out;
  out.line(fmt::format("packed {}, {}, into {} ({}, overhead {:.2f} %) in {}, {}/s", plural(info.samples, "sample"),
                       size_text(static_cast<double>(packed_bytes_)), base::escape(info.url),
                       size_text(static_cast<double>(info.device_bytes)), overhead, duration_text(elapsed_s),
                       size_text(static_cast<double>(packed_bytes_) / elapsed_s)));
  if (left_out_ > 0) out.line(fmt::format("left out {}, named above", plural(left_out_, "thing")));
  return out.finish();
}

Result<int> Pack::run() {
  catch_interrupts();
  DLFS_TRY(check_destination());
  DLFS_TRY_ASSIGN(const ingest::Folder folder, scan());
  if (interrupted() != 0) return stopped();
  DLFS_TRY(check_room(folder));
  WriterOptions options = writer_options();
  if (options_.chunk_bytes == 0) {
    DLFS_TRY_ASSIGN(options.chunk_bytes, ingest::suit_chunk_bytes(folder.files()));
  }
  DLFS_TRY_ASSIGN(Writer writer, Writer::create(options_.volume, schema(&folder), options));
  progress_.emplace("packing", quiet_);
  DLFS_TRY(options_.skip_errors ? write_in_order(folder, writer) : write_placed(folder, writer));
  DLFS_TRY_ASSIGN(const VolumeInfo info, writer.commit());
  progress_->clear();
  DLFS_TRY(report(info));
  return kExitOk;
}

}  // namespace

void add_pack(CLI::App& app, Request& request) {
  auto options = std::make_shared<PackOptions>();
  CLI::App* command =
      add_command(app, request, "pack", "Pack a folder of files into a volume", "dlfs pack photos/train train.dlfs");
  command
      ->add_option("SOURCE", options->source,
                   "The folder. Every regular file below it, and every link to one, becomes a sample with "
                   "its relative path as name")
      ->required()
      ->type_name("");
  command->add_option("VOLUME", options->volume, std::string("Where to pack to: ") + kVolumeUrls)
      ->required()
      ->type_name("");
  const CLI::Option* given =
      add_size(*command, "--chunk-size", options->chunk_bytes, "Size of a chunk: a power of two from 64KiB to 16MiB")
          ->default_str("256KiB, or what wastes less room with the sizes of these files");
  command->add_flag("--no-label", options->no_label,
                    "Leave out the label, which is the number of the file's first folder level among the sorted "
                    "folders of SOURCE");
  command->add_option("--field", options->field, "Name of the field that holds a file's bytes")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_flag("--force", options->force, "Overwrite a volume or other data at VOLUME");
  command->add_flag("--no-shuffle", options->no_shuffle, "Place samples in source order instead of shuffled");
  add_count(*command, "--seed", options->seed, "Seed of the shuffled placement");
  command->add_flag("--skip-errors", options->skip_errors,
                    "Leave out files that cannot be read or change meanwhile, naming each, instead of "
                    "stopping. Samples are then shuffled within a pool of chunks instead of over the whole volume");
  command->add_flag("--quiet", options->quiet, "Show neither progress nor summary");
  command->callback([options, given, &request] {
    if (given->count() != 0 && (options->chunk_bytes == 0 || options->chunk_bytes > (16u << 20))) {
      throw CLI::ValidationError("--chunk-size",
                                 fmt::format("chunks of {} bytes are not possible; choose a power of two "
                                             "from 64KiB to 16MiB",
                                             options->chunk_bytes));
    }
    request.run = [options, &request] { return Pack(*options, request.json).run(); };
  });
}

}  // namespace dlfs::tools
