"""The replaced libraries beside ours, a folder for each; one body for both."""
