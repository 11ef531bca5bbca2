"""Files under the storage root: paths, the layout of a cluster's folders, and versioned documents."""
