// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// namePrefix returns the prefix of the names of all rulesets of an instance. Instances in different directories have different prefixes.
func (in Instance) namePrefix() string {
	dir := filepath.Clean(in.Dir)
	if dir == datapath.DefaultDir {
		return "floodwall-"
	}
	h := fnv.New32a()
	h.Write([]byte(dir))
	return fmt.Sprintf("floodwall%08x-", h.Sum32())
}

// nextName returns a name that no ruleset of the manifests has.
func (in Instance) nextName(manifests []*manifest.Manifest) string {
	last := 0
	for _, m := range manifests {
		for _, p := range m.AllRulesets() {
			text := p.Name[strings.LastIndexByte(p.Name, '-')+1:]
			if n, err := strconv.Atoi(text); err == nil {
				last = max(last, n)
			}
		}
	}
	return in.namePrefix() + strconv.Itoa(last+1)
}

// prefixOf returns the prefix of the names of rulesets of a kind.
func (in Instance) prefixOf(k netfilter.Kind) string {
	if k == netfilter.KindIptables {
		return strings.ToUpper(in.namePrefix())
	}
	return in.namePrefix()
}
