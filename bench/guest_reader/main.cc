// guest_reader: reads the samples of bench/guest.py in one of the ways it compares, checks every byte, and prints what
// that took as one line of JSON. It runs in the virtual machine; `make` runs where the data are prepared.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string_view>

#include "readers.h"

namespace dlfs::guest {

double busy_seconds() {
  std::ifstream stat("/proc/stat");
  std::string line, name;
  std::getline(stat, line);
  std::istringstream fields(line);
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, softirq = 0;
  if (!(fields >> name >> user >> nice >> system >> idle >> waiting >> irq >> softirq)) return -1;
  return (user + nice + system + irq + softirq) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

namespace {

constexpr const char* kUsage =
    "usage: guest_reader make FOLDER --packed FILE --count N --bytes N\n"
    "       guest_reader files FOLDER | packed FILE | chunk URL | full URL  --count N --bytes N\n"
    "                    [--seed N] [--threads N] [--align BYTES] [--seconds S] [--cache MIB] [--no-verify] [--cold]\n"
    "Reads samples that `make` made, checks every byte of them, and prints time, processor time of the whole machine\n"
    "and counts as JSON. --align reads a packed file past the page cache; --cold empties the page cache before.\n";

template <class T>
bool parse(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_option(std::string_view name, std::string_view value, Options& options) {
  if (name == "--packed") return options.packed = value, true;
  if (name == "--count") return parse(value, options.count) && options.count > 0;
  if (name == "--bytes") return parse(value, options.bytes) && options.bytes > 0 && options.bytes % 8 == 0;
  if (name == "--seed") return parse(value, options.seed);
  if (name == "--threads") return parse(value, options.threads) && options.threads > 0;
  if (name == "--align") return parse(value, options.align);
  if (name == "--seconds") return parse(value, options.seconds);
  if (name == "--cache") return parse(value, options.cache);
  return false;
}

// False when the command line makes no sense.
bool parse_all(int argc, char** argv, Options& options, bool& cold) {
  if (argc < 3) return false;
  options.what = argv[1];
  options.where = argv[2];
  for (int i = 3; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--cold") {
      cold = true;
    } else if (name == "--no-verify") {
      options.verify = false;
    } else if (++i == argc || !parse_option(name, argv[i], options)) {
      return false;
    }
  }
  return options.count > 0 && options.bytes > 0;
}

Result<void> empty_page_cache() {
  const int fd = ::open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
  const bool done = fd >= 0 && ::write(fd, "3", 1) == 1;
  const int number = errno;
  if (fd >= 0) ::close(fd);
  if (done) return {};
  return Error{Code::kIo, "the page cache cannot be emptied: /proc/sys/vm/drop_caches takes root", number};
}

Result<Outcome> run(const Options& options, bool cold) {
  if (cold) {
    if (const auto emptied = empty_page_cache(); !emptied.ok()) return emptied.error();
  }
  if (options.what == "make") return make_samples(options);
  if (options.what == "files") return read_files(options);
  if (options.what == "packed") return read_packed(options);
  if (options.what == "chunk") return read_volume(options, Mode::kChunk);
  if (options.what == "full") return read_volume(options, Mode::kFull);
  return Error{Code::kInvalidArgument,
               fmt::format("there is no reader '{}': guest_reader --help lists them", options.what)};
}

}  // namespace
}  // namespace dlfs::guest

int main(int argc, char** argv) {
  using namespace dlfs::guest;
  Options options;
  bool cold = false;
  const bool help = argc > 1 && std::string_view(argv[1]) == "--help";
  if (help || !parse_all(argc, argv, options, cold)) {
    fmt::print(help ? stdout : stderr, "{}", kUsage);
    return help ? 0 : 2;
  }
  const auto outcome = run(options, cold);
  if (!outcome.ok()) {
    fmt::print(stderr, "guest_reader: {}\n", outcome.error().message);
    return 1;
  }
  fmt::print(
      "{{\"samples\": {}, \"distinct\": {}, \"epochs\": {}, \"elapsed_s\": {:.6f}, \"busy_s\": {:.3f}, \"open_s\": "
      "{:.6f}, "
      "\"device_bytes\": {}, \"device_requests\": {}}}\n",
      outcome->samples, outcome->distinct, outcome->epochs, outcome->elapsed_s, outcome->busy_s, outcome->open_s,
      outcome->device_bytes, outcome->device_requests);
  return 0;
}
