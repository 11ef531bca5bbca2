"""Files below the storage root: their paths, the layout of a cluster's folders, and documents with a version."""
