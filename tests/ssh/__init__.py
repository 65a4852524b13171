"""Clusters reached through ssh, against a real sshd on loopback."""
