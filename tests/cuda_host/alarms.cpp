// A timer of the processor's time of each thread; other threads and other processes do not count.
#include "alarms.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace {

struct Timer {
    timer_t timer{};
    bool is_made = false;

    void set(double seconds, long again) {
        if (!is_made) {
            sigevent event{};
            event.sigev_notify = SIGEV_THREAD_ID;
            event.sigev_signo = SIGRTMIN + 6;
            event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
            is_made = !timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer);
        }
        auto whole = (time_t)seconds;
        itimerspec spec{{0, again}, {whole, (long)((seconds - (double)whole) * 1e9)}};
        if (is_made) timer_settime(timer, 0, &spec, nullptr);
    }

    ~Timer() {
        if (is_made) timer_delete(timer);
    }
};

thread_local Timer mine;
thread_local pid_t owner = 0;

}  // namespace

void alarms::start(double seconds, void (*handler)(int, siginfo_t*, void*)) {
    if (owner != getpid()) mine.is_made = false, owner = getpid();  // a forked process has none
    struct sigaction action{};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(SIGRTMIN + 6, &action, nullptr);
    mine.set(seconds, 5'000'000);
}

void alarms::stop() {
    if (mine.is_made) mine.set(0, 0);
}
