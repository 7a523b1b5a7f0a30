// Package ban has the bans of an instance: dynamic sets in the memory of an XDP program and in netfilter, the file that
// keeps their entries over a reboot, the detector behind `over: {ban: …}`, and entries that a set has lost. Whom nothing
// may ban is in host/allowlist.
package ban
