#include "cpu/tile_ops_body.h"

namespace kpage::cpu {

const TileOps<float> kAvx512OpsF32 = kTileBodyOps<float>;

}  // namespace kpage::cpu
