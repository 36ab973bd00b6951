"""`samovar up`, in parts: the gateway as a child process, the port it wants, the sample functions, what is printed."""
