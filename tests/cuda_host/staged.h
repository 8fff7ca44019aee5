// Copies to shared memory that threads began and have not waited for (cp.async).
#pragma once

namespace staged {

// No thread has begun a copy.
void start_block();

}  // namespace staged
