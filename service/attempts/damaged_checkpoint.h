// Checkpoints that cannot be read because they are damaged. The job then continues from an older one.
#pragma once

#include <string>

#include "service/state/context.h"

namespace xlad::service {

// Whether a worker reports with this message that the checkpoint from which the job's starting attempt begins is
// damaged, or that a part of it no longer exists. False if the place of the checkpoint cannot be reached.
bool FindsDamage(const Job& job, const TaskFailed& message);

// Drops the checkpoint that two attempts in a row have found damaged, so that the next attempt starts from the one
// before it: of the job itself, or, if the job was resumed and has no checkpoint of its own, of the job that it
// continues. The files of a dropped checkpoint are kept. If there is no older checkpoint, nothing is dropped, because
// the damage may lie in what a worker reads, and returns why the job must end. Otherwise returns an empty text.
std::string DropDamaged(Context& context, Job* job, const std::string& damage);

}  // namespace xlad::service
