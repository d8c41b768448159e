#include "cpu/tile_ops_body.h"

namespace kpage::cpu {

const TileOps<float> kAvx512OpsF32 = kTileBodyOps<float>;
const TileOps<double> kAvx512OpsF64 = kTileBodyOps<double>;

}  // namespace kpage::cpu
