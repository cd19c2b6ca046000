// Chooses workers that reach each other. Pure functions.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "service/placement/free_devices.h"

namespace xlad::service {

// Pairs of workers that do not reach each other.
using CutPairs = std::vector<std::pair<std::string, std::string>>;
// Takes the devices of a job from the workers for which `may_have` returns true, or from all workers if it is null.
// Returns an empty list if there are too few devices.
using TakePeers = std::function<std::vector<Peer>(FreeDevices* free, const FreeDevices::MayHave& may_have)>;

// Takes devices such that all of their workers reach each other. If a short search finds no such choice, it ignores
// `cuts`, because the links may work again.
std::vector<Peer> TakeConnected(const FreeDevices::MayHave& may_have, const CutPairs& cuts, const TakePeers& take,
                                FreeDevices* free);

}  // namespace xlad::service
