// dlfs stat: what a volume holds and what it costs.
#include <algorithm>
#include <ctime>
#include <memory>

#include "base/error.h"
#include "base/try.h"
#include "command.h"
#include "output.h"
#include "units.h"

namespace dlfs::tools {
namespace {

std::vector<std::string_view> classes_of(const Schema& schema) {
  std::vector<std::string_view> classes;
  for (const auto& [key, value] : schema.attributes) {
    if (key != "classes" || value.empty()) continue;
    for (std::string_view left = value;;) {
      const std::size_t end = left.find('\0');
      classes.push_back(left.substr(0, end));
      if (end == std::string_view::npos) break;
      left.remove_prefix(end + 1);
    }
  }
  return classes;
}

double overhead_percent(const VolumeInfo& info) {
  if (info.payload_bytes == 0) return 0;
  return 100.0 * static_cast<double>(info.record_bytes + info.padding_bytes) / static_cast<double>(info.payload_bytes);
}

double per_sample(std::uint64_t bytes, std::uint64_t samples) {
  return samples == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(samples);
}

std::string time_text(std::uint64_t unix_s) {
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm utc{};
  char text[32];
  if (gmtime_r(&time, &utc) == nullptr || std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &utc) == 0)
    return "unknown";
  return text;
}

// As put_name(): the bytes of all classes are added where one of them had to be escaped.
void put_classes(Json& json, const std::vector<std::string_view>& classes) {
  Json escaped = Json::array(), bytes = Json::array();
  for (const std::string_view name : classes) {
    escaped.push_back(base::escape(name));
    bytes.push_back(hex(name));
  }
  const bool changed =
      !std::ranges::equal(classes, escaped, {}, {}, [](const Json& text) { return text.get<std::string>(); });
  json["classes"] = std::move(escaped);
  if (changed) json["classes_hex"] = std::move(bytes);
}

Json to_json(const VolumeInfo& info, const Schema& schema) {
  Json json = {{"url", info.url},
               {"samples", info.samples},
               {"schema", schema.to_string()},
               {"payload_bytes", info.payload_bytes},
               {"padding_bytes", info.padding_bytes},
               {"record_bytes", info.record_bytes},
               {"index_bytes", info.index_bytes},
               {"name_bytes", info.name_bytes},
               {"schema_bytes", info.schema_bytes},
               {"overhead_percent", overhead_percent(info)},
               {"chunk_bytes", info.chunk_bytes},
               {"chunks", info.chunks},
               {"device_bytes", info.device_bytes},
               {"volume_id", info.volume_id},
               {"generation", info.generation},
               {"writer", info.writer},
               {"created_unix_s", info.created_unix_s},
               {"mount_s", info.mount_s},
               {"directory_bytes", info.directory_bytes},
               {"directory_bytes_per_sample", per_sample(info.directory_bytes, info.samples)},
               {"page_kind", info.page_kind},
               {"engine", info.engine},
               {"notes", info.notes}};
  put_classes(json, classes_of(schema));
  return json;
}

void write_classes(Output& out, const Schema& schema) {
  const auto classes = classes_of(schema);
  if (classes.empty()) return;
  std::string some;
  for (std::size_t i = 0; i < std::min<std::size_t>(classes.size(), 10); ++i)
    some += (i == 0 ? "" : ", ") + base::escape(classes[i]);
  out.line(
      fmt::format("{:<12} {} ({}{})", "classes", count_text(classes.size()), some, classes.size() > 10 ? ", ..." : ""));
}

void write_text(Output& out, const VolumeInfo& info, const Schema& schema) {
  auto line = [&](std::string_view key, const std::string& value) { out.line(fmt::format("{:<12} {}", key, value)); };
  auto size = [&](std::string_view key, std::uint64_t bytes, std::string_view what) {
    line(key, fmt::format("{:>12}  {:>16} bytes   {}", size_text(static_cast<double>(bytes)), count_text(bytes), what));
  };
  line("volume", base::escape(info.url));
  line("samples", count_text(info.samples));
  line("schema", base::escape(schema.to_string()));
  write_classes(out, schema);
  size("payload", info.payload_bytes, "the samples themselves");
  size("record", info.record_bytes, "headers and sums of the records");
  size("padding", info.padding_bytes, "unused ends of chunks, alignment");
  line("overhead", fmt::format("{:.2f} % (record and padding over payload)", overhead_percent(info)));
  size("index", info.index_bytes, "the directory, as stored");
  size("names", info.name_bytes, "as stored");
  size("device", info.device_bytes, "the whole volume");
  line("chunks", fmt::format("{} of {}", count_text(info.chunks), size_text(static_cast<double>(info.chunk_bytes))));
  line("id", fmt::format("{}, generation {}", info.volume_id, info.generation));
  line("packed", fmt::format("{} by {}", time_text(info.created_unix_s), base::escape(info.writer)));
  line("mounted in", duration_text(info.mount_s));
  line("memory", fmt::format("{} for the directory, {:.2f} bytes a sample, {} pages",
                             size_text(static_cast<double>(info.directory_bytes)),
                             per_sample(info.directory_bytes, info.samples), info.page_kind));
  line("engine", info.engine);
  if (!info.notes.empty()) line("notes", info.notes);
}

Result<int> run(const std::string& url, bool json) {
  DLFS_TRY_ASSIGN(const Volume volume, Volume::mount(url));
  const VolumeInfo info = volume.info();
  if (json) {
    DLFS_TRY(print(to_json(info, volume.schema())));
    return kExitOk;
  }
  Output out;
  write_text(out, info, volume.schema());
  DLFS_TRY(out.finish());
  return kExitOk;
}

}  // namespace

void add_stat(CLI::App& app, Request& request) {
  auto url = std::make_shared<std::string>();
  CLI::App* command =
      add_command(app, request, "stat", "Show what a volume holds, and its sizes", "dlfs stat train.dlfs");
  add_volume(*command, *url);
  command->callback([url, &request] { request.run = [url, &request] { return run(*url, request.json); }; });
}

}  // namespace dlfs::tools
