// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// Lengths of names in bytes, without the zero at the end.
const (
	maxChainName = 28 // XT_FUNCTION_MAXNAMELEN is 29 since iptables 1.8, and shorter names were allowed before
	maxSetName   = 31 // IPSET_MAXNAMELEN is 32
)

// nameSet has the names of chains or sets that are in use.
type nameSet map[string]bool

// take returns an unused name made from text, of at most most bytes.
func (n nameSet) take(text string, most int) string {
	name := shortName(text, most)
	for i := 2; n[name]; i++ {
		name = shortName(fmt.Sprintf("%s-%d", text, i), most)
	}
	n[name] = true
	return name
}

// shortName returns text or, if it is too long, its beginning and a hash.
func shortName(text string, most int) string {
	if len(text) <= most {
		return text
	}
	h := fnv.New32a()
	h.Write([]byte(text))
	suffix := fmt.Sprintf("-%06x", h.Sum32()&0xffffff)
	return text[:most-len(suffix)] + suffix
}

// chainName returns the name of one of Floodwall's chains. The name may be too long.
func (b *builder) chainName(what string) string {
	return strings.ToUpper(b.o.Name) + "-" + strings.ReplaceAll(what, ":", "-")
}

// mainChain returns the name of one of the chains to which hooks lead.
func (b *builder) mainChain(what string) string { return shortName(b.chainName(what), maxChainName) }
