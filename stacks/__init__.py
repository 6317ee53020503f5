"""The program that every stack shares, and the engines that evaluate it without a cloud."""
