// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// Directories in which the policy of a bundle may name files, in addition to the bundle's own. They are for secrets and certificates of the node, and
// for files that other programs on the node write.
const (
	Secrets = "/etc/floodwall/"
	Logs    = "/var/log/"
)

// CheckPolicy returns an error in two cases: the policy names a file that a bundle's policy must not name, or the bundle has a file that the policy
// does not name. Otherwise the key's holder could make a node send its secrets to a server that the policy names (crowdsec's key_file), or use any
// file of the host as a list.
func CheckPolicy(p *policy.Policy, names []string) error {
	used := map[string]bool{Policy: true}
	for _, ref := range p.Files() {
		secret := slices.ContainsFunc(p.Services, func(s policy.Service) bool { return s.Guard != nil && ref.Name == &s.Guard.Secret })
		switch inside := path.Clean(filepath.ToSlash(*ref.Name)); {
		case secret:
			if err := within(*ref.Name, Secrets, ref.What+": secret"); err != nil {
				return err
			}
		case !slices.Contains(names, inside) || inside == Policy:
			return wording.Hinted(fmt.Sprintf("%s:%d: %s names %s, which is not in the bundle", p.File, ref.Pos.Line, ref.What, *ref.Name),
				"put the file into the directory of the policy, and name it by its path there")
		default:
			used[inside] = true
		}
	}
	for _, f := range filesOfNode(&p.Daemon) {
		if err := within(f.name, f.dir, f.what); err != nil {
			return err
		}
	}
	for _, n := range names {
		if !used[n] {
			return wording.Hinted(fmt.Sprintf("the policy does not name %s", n), "remove the file from the directory: a bundle has the policy and the files that it names")
		}
	}
	return nil
}

type nodeFile struct{ what, name, dir string }

// filesOfNode returns the node's own files that the daemon settings of a policy name.
func filesOfNode(d *policy.Daemon) (list []nodeFile) {
	if t := d.TLS; t != nil {
		list = append(list, nodeFile{"tls: cert", t.Cert, Secrets}, nodeFile{"tls: key", t.Key, Secrets}, nodeFile{"tls: client_ca", t.ClientCA, Secrets})
	}
	if w := d.Webhook; w != nil {
		list = append(list, nodeFile{"webhook: secret_file", w.SecretFile, Secrets})
	}
	if c := d.CrowdSec; c != nil {
		list = append(list, nodeFile{"crowdsec: key_file", c.KeyFile, Secrets}, nodeFile{"crowdsec: ca", c.CA, Secrets})
	}
	if u := d.Upstream; u != nil {
		for _, peer := range u.Peers {
			list = append(list, nodeFile{"upstream: password_file", peer.Password, Secrets})
		}
	}
	if s := d.Suricata; s != nil {
		list = append(list, nodeFile{"suricata", s.Eve, Logs})
	}
	return list
}

// within returns an error for a file outside a directory.
func within(name, dir, what string) error {
	if name == "" || strings.HasPrefix(path.Clean(name), dir) {
		return nil
	}
	return wording.Hinted(fmt.Sprintf("%s: the policy of a bundle must not name %s", what, name), "keep the file below "+dir+" on each node: a bundle has no secrets")
}
