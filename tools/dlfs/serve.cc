// dlfs serve: exports files and devices as NVMe/TCP namespaces.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>

#include "base/error.h"
#include "base/try.h"
#include "block/descriptor.h"
#include "block/url.h"
#include "command.h"
#include "output.h"
#include "signals.h"
#include "target/server.h"
#include "units.h"

namespace dlfs::tools {
namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t kPort = 4420;

struct ServeOptions {
  std::vector<std::string> spaces, listen;
  std::vector<std::string> hosts;
  std::string nqn;
  bool read_only = false, no_digests = false, verbose = false;
  std::uint32_t pollers = 1, max_connections = 1024;
  std::uint64_t memory_bytes = 256u << 20;
};

volatile std::sig_atomic_t statistics_wanted = 0;

// A file that somebody serves or packs is not served for writing a second time.
Result<block::Descriptor> lock(const std::string& path) {
  block::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    const int error = errno;
    std::string sentence = fmt::format("cannot serve {}", base::escape(path));
    if (error == ENOENT) {
      return base::make_error(Code::kNotFound,
                              "cannot serve {}: there is no such file; `truncate -s 1GiB {}` makes one",
                              base::escape(path), base::escape(path));
    }
    return base::errno_error(error, sentence);
  }
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return base::make_error(Code::kBusy,
                            "{} is being packed or served by another process; stop that first, or serve it --read-only",
                            base::escape(path));
  }
  return file;
}

// "mem:256MiB" is a memory device of this server's own.
std::string with_name(const std::string& url, std::size_t index) {
  if (!url.starts_with("mem:")) return url;
  const std::string rest = url.substr(4);
  if (const auto size = block::parse_size(rest); size.ok()) return fmt::format("mem:serve-{}?size={}", index, *size);
  return url;
}

struct Prepared {
  target::ServerOptions server;
  std::vector<block::Descriptor> locks;
};

Result<Prepared> prepare(const ServeOptions& options) {
  Prepared prepared;
  target::ServerOptions& server = prepared.server;
  for (std::size_t i = 0; i < options.spaces.size(); ++i) {
    const std::string url = with_name(options.spaces[i], i + 1);
    DLFS_TRY_ASSIGN(const block::Url parsed, block::parse_url(url));
    if (parsed.scheme == block::Scheme::kFile) {
      struct stat status{};
      const bool there = stat(parsed.path.c_str(), &status) == 0;
      if (!options.read_only || !there) {
        DLFS_TRY_ASSIGN(auto held, lock(parsed.path));
        prepared.locks.push_back(std::move(held));
      }
    }
    server.namespaces.push_back({.url = url, .read_only = options.read_only});
  }
  if (!options.listen.empty()) server.listen.clear();
  for (const std::string& text : options.listen) {
    DLFS_TRY_ASSIGN(const net::Endpoint endpoint, net::parse_endpoint(text, kPort));
    server.listen.push_back(endpoint);
  }
  server.nqn = options.nqn;
  server.hosts = options.hosts;
  server.pollers = options.pollers;
  server.max_connections = options.max_connections;
  server.max_memory_bytes = options.memory_bytes;
  server.allow_header_digest = server.allow_data_digest = !options.no_digests;
  const bool verbose = options.verbose;
  server.log = [verbose](const std::string& line) {
    if (verbose || line.starts_with("refused")) fmt::print(stderr, "dlfs serve: {}\n", line);
  };
  return prepared;
}

void warn(const ServeOptions& options, const target::Server& server) {
  if (!options.hosts.empty()) return;
  for (const net::Address& address : server.addresses()) {
    if (address.loopback()) continue;
    fmt::print(stderr,
               "dlfs serve: warning: everybody who reaches {} can read{} all that is served here: NVMe/TCP has no "
               "password. Name the hosts that may "
               "connect with --host NQN, and keep others off the network\n",
               address.text(), options.read_only ? "" : " and overwrite");
  }
}

void print_statistics(const target::Server& server) {
  const auto s = server.statistics();
  fmt::print(stderr,
             "dlfs serve: {} connections ({} refused), {} controllers, {} reads ({}), {} writes ({}), {} errors\n",
             s.connections, s.refused, s.controllers, s.reads, size_text(static_cast<double>(s.read_bytes)), s.writes,
             size_text(static_cast<double>(s.written_bytes)), s.errors);
}

Result<void> announce(const target::Server& server, bool json) {
  Output out;
  if (json) {
    Json addresses = Json::array();
    for (const auto& address : server.addresses()) addresses.push_back(address.text());
    out.line(dump({{"nqn", server.nqn()}, {"addresses", addresses}, {"urls", server.urls()}, {"ready", true}}));
  } else {
    for (const std::string& url : server.urls()) out.line(url);
    out.line("ready");
  }
  out.flush();
  return out.finish();
}

Result<int> run(const ServeOptions& options, bool json) {
  catch_interrupts();
  std::signal(SIGUSR1, [](int) { statistics_wanted = 1; });
  DLFS_TRY_ASSIGN(Prepared prepared, prepare(options));
  DLFS_TRY_ASSIGN(const auto server, target::Server::create(std::move(prepared.server)));
  sigset_t watched, before;
  sigemptyset(&watched);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&watched, signal);
  pthread_sigmask(SIG_BLOCK, &watched, &before);
  DLFS_TRY(server->start());  // its threads inherit the mask: signals come to this one
  warn(options, *server);
  DLFS_TRY(announce(*server, json));
  while (interrupted() == 0) {
    const timespec slice{.tv_sec = 1, .tv_nsec = 0};
    pselect(0, nullptr, nullptr, nullptr, &slice, &before);  // signals come through only here
    if (statistics_wanted != 0) {
      statistics_wanted = 0;
      print_statistics(*server);
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  server->stop();
  if (options.verbose) print_statistics(*server);
  return kExitOk;
}

}  // namespace

void add_serve(CLI::App& app, Request& request) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command =
      add_command(app, request, "serve", "Export files or devices to other machines, over NVMe/TCP",
                  "dlfs serve --listen 10.1.0.7:4420 --host nqn.2014-08.org.nvmexpress:uuid:... /dev/nvme1n1");
  command
      ->add_option("SPACE", options->spaces,
                   "What to export, each as a namespace: a FILE, a DEVICE, mem:SIZE or null:SIZE")
      ->required()
      ->type_name("");
  command
      ->add_option("--listen", options->listen, "HOST:PORT to listen on, several times for several; port 0: a free one")
      ->type_name("ADDRESS")
      ->default_str("127.0.0.1:4420")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  command->add_option("--nqn", options->nqn, "Name of the subsystem; by default one made from what is exported")
      ->type_name("NQN");
  command
      ->add_option("--host", options->hosts,
                   "NQN of a host that may connect, several times for several; by default all")
      ->type_name("NQN")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  command->add_flag("--read-only", options->read_only, "Refuse writes");
  add_count(*command, "--pollers", "Threads that serve", 1, 64, [options](std::uint64_t n) {
    options->pollers = static_cast<std::uint32_t>(n);
  })->default_str("1");
  add_count(*command, "--max-connections", "Connections at the same time; more are refused", 1, 65'536,
            [options](std::uint64_t n) { options->max_connections = static_cast<std::uint32_t>(n); })
      ->default_str("1024");
  add_size(*command, "--memory", options->memory_bytes, "Memory for data under way");
  command->add_flag("--no-digests", options->no_digests, "Do not offer header and data digests");
  command->add_flag("-v,--verbose", options->verbose,
                    "Tell of hosts that come and go; SIGUSR1 prints statistics at any time");
  command->callback([options, &request] { request.run = [options, &request] { return run(*options, request.json); }; });
}

}  // namespace dlfs::tools
