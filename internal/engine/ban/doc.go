// Package ban changes and lists dynamic sets, in the memory of an XDP program and in netfilter.

package ban
