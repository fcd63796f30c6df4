// Ctrl-C and SIGTERM as a flag that long commands look at, so that they can clean up.
#pragma once

#include "dlfs/result.h"

namespace dlfs::tools {

// From now on the first SIGINT, SIGTERM or SIGHUP only sets the flag; the second one kills, in case cleaning up hangs.
void catch_interrupts() noexcept;
int interrupted() noexcept;  // the signal, or 0
// The error for a command that stopped because of it: what was going on, and what state things are in.
Error interrupted_error(const char* sentence);

}  // namespace dlfs::tools
