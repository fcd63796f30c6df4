// Epochs read under faults, by several ranks in turn: exactly the order, every byte right, nothing twice, memory
// within its bound; and once the world has healed, to the end in bounded time.
#pragma once

#include "sim/stage.h"

namespace dlfs::sim {

Check play_reading(Stage& stage);

}  // namespace dlfs::sim
