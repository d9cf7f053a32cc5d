"""What a Worker computes: the inner steps of leases, and pieces of others for audits."""
