"""What passes edit with: replay, views of loops, cse, dce, activity."""
