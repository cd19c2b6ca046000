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
// continues. A job whose last checkpoint is damaged starts from its first state again, because that loses only time.
// The files of a dropped checkpoint are kept. Returns why the job must end: it was resumed from a checkpoint, and there
// is no older one, so that it has trained nothing that it could lose. Otherwise returns an empty text.
std::string DropDamaged(Context& context, Job* job, const std::string& damage);

}  // namespace xlad::service
