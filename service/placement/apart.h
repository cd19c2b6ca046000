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
// Takes the devices of a job from those workers that it may have; null: from all. An empty list if there are too few.
using TakePeers = std::function<std::vector<Peer>(FreeDevices* free, const FreeDevices::MayHave& may_have)>;

// Takes devices so that no two of their workers are cut off from each other. If it finds no such choice, takes devices
// regardless: the links may work again.
std::vector<Peer> TakeConnected(const FreeDevices::MayHave& may_have, const CutPairs& cuts, const TakePeers& take,
                                FreeDevices* free);

}  // namespace xlad::service
