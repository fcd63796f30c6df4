// Packs under faults: after each the volume is the old one, the new one, or says that it is incomplete.
#pragma once

#include "sim/stage.h"

namespace dlfs::sim {

Check play_packing(Stage& stage);

}  // namespace dlfs::sim
