// This file has the table of the connections that protected services have: bpf/flow.h describes it. Programs pass the segments of
// connections that are in it.
//
// A program that begins to protect services knows none of their connections, and a generation that is returned to knows none of those made
// since. The kernel knows them: Learn (preload.go) reads all at once. Otherwise packets would have to ask for each, at a limited rate.

package datapath
