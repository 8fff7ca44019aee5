// An alarm for a thread that works for too long.
#pragma once
#include <signal.h>

namespace alarms {

// After so many seconds of work, and every few milliseconds from then on until ``stop``, ``handler`` runs on the calling thread as
// that of a signal.
void start(double seconds, void (*handler)(int, siginfo_t*, void*));
void stop();

}  // namespace alarms
