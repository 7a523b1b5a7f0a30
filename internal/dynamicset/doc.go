// Package dynamicset changes and lists dynamic sets, in the memory of an XDP program and in netfilter.
package dynamicset
