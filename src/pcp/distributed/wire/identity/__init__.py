"""Who is who on the wire: certificates, credentials, revocations and TLS."""
