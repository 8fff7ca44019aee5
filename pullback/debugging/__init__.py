"""Looking for what is wrong in a program: values that are not finite, wrong gradients, state that no guard sees."""
