"""The Shepherd: the coordinator's host, and what it computes, stores and reports for a run."""
