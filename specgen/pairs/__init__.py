"""What goes together, and where it comes from: the registry, compatibility, and files made from packages."""
