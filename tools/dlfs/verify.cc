// dlfs verify: reads everything and reports what is not as it was written.
#include <memory>

#include "base/error.h"
#include "base/try.h"
#include "command.h"
#include "output.h"
#include "progress.h"
#include "signals.h"
#include "units.h"

namespace dlfs::tools {
namespace {

std::string text_of(const Volume::Finding& finding) {
  std::string text = "bad " + finding.what;
  if (finding.id) text += fmt::format(": sample {}", *finding.id);
  if (!finding.name.empty()) text += fmt::format(" '{}'", finding.name);
  return text +
         fmt::format(", chunk {}, at byte {} of the device: {}", finding.chunk, finding.device_offset, finding.message);
}

Json json_of(const Volume::Finding& finding) {
  Json json = {{"what", finding.what}};
  json["id"] = finding.id ? Json(*finding.id) : Json(nullptr);
  json["name"] = finding.name;
  json["chunk"] = finding.chunk;
  json["device_offset"] = finding.device_offset;
  json["message"] = finding.message;
  return json;
}

void write_summary(Output& out, const Volume::VerifyReport& report, double elapsed_s, bool json) {
  if (json) {
    const Json summary = {{"samples", report.samples},         {"bytes", report.bytes},
                          {"bad_samples", report.bad_samples}, {"bad_chunks", report.bad_chunks},
                          {"findings_count", report.findings}, {"elapsed_s", elapsed_s},
                          {"ok", report.findings == 0}};
    out.line((report.findings == 0 ? "]," : "\n],") + dump(summary).substr(1));
    return;
  }
  const std::string read =
      fmt::format("{}, {} in {}, {}/s", plural(report.samples, "sample"), size_text(static_cast<double>(report.bytes)),
                  duration_text(elapsed_s), size_text(static_cast<double>(report.bytes) / elapsed_s));
  if (report.findings == 0) {
    out.line("everything is as it was written: " + read);
  } else {
    out.line(fmt::format("{}: {}, {}; {}", plural(report.findings, "finding"), plural(report.bad_samples, "bad sample"),
                         plural(report.bad_chunks, "bad chunk"), read));
  }
}

Result<int> run(const std::string& url, bool quiet, bool json) {
  const auto start = std::chrono::steady_clock::now();
  DLFS_TRY_ASSIGN(const Volume volume, Volume::mount(url));
  catch_interrupts();  // until here a signal ends it at once: there is nothing to clean up
  Progress progress("verifying", quiet || json);
  Output out;
  bool first = true;
  if (json) out.write("{\"findings\":[");
  auto found = [&](const Volume::Finding& finding) {
    progress.clear();
    if (json) {
      out.write((first ? "\n" : ",\n") + dump(json_of(finding)));
    } else {
      out.line(text_of(finding));
      out.flush();
    }
    first = false;
  };
  auto advance = [&](std::uint64_t done, std::uint64_t all) {
    progress.update(done, all, 0, 0);
    return interrupted() == 0;
  };
  auto report = volume.verify(found, advance);
  progress.clear();
  if (!report.ok() && interrupted() != 0) return interrupted_error("interrupted: the volume was not read to its end");
  if (!report.ok()) return std::move(report).error();
  if (!quiet || json)
    write_summary(out, *report, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), json);
  DLFS_TRY(out.finish());
  return report->findings == 0 ? kExitOk : kExitFailed;
}

}  // namespace

void add_verify(CLI::App& app, Request& request) {
  auto url = std::make_shared<std::string>();
  auto quiet = std::make_shared<bool>(false);
  CLI::App* command =
      add_command(app, request, "verify", "Read a whole volume and report everything that is not as it was written",
                  "dlfs verify train.dlfs && echo good");
  add_volume(*command, *url);
  command->add_flag("--quiet", *quiet, "Show nothing but findings");
  command->callback(
      [url, quiet, &request] { request.run = [url, quiet, &request] { return run(*url, *quiet, request.json); }; });
}

}  // namespace dlfs::tools
