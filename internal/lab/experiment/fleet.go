// This file measures a fleet: three real hubs and many nodes in one process, with connections that are no sockets and enforcers that
// count. In: how many nodes and bans. Out: rows with a figure each, and whether it meets its bar.
//
// Read fleet.go first: Run does the phases in phases.go, each with a site of its own (site.go).

package experiment
