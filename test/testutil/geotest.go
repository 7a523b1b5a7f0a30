// SPDX-License-Identifier: Apache-2.0

// This file writes databases in MaxMind's format for tests and for the examples of the documents.

package testutil

import (
	"net"
	"os"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"
)

// Network is a network and its data in the database. An empty Country or an ASN of 0 means that the database has no such data.
type Network struct {
	Prefix  string
	Country string
	ASN     uint32
}

// Write writes a database with MaxMind's fields. It replaces the file atomically, like the programs that download databases.
func Write(file string, networks ...Network) error {
	tree, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: "Test", Description: map[string]string{"en": "for tests"}, RecordSize: 24, IncludeReservedNetworks: true})
	if err != nil {
		return err
	}
	for _, n := range networks {
		_, prefix, err := net.ParseCIDR(n.Prefix)
		if err != nil {
			return err
		}
		says := mmdbtype.Map{}
		if n.Country != "" {
			says["country"] = mmdbtype.Map{"iso_code": mmdbtype.String(n.Country)}
		}
		if n.ASN != 0 {
			says["autonomous_system_number"] = mmdbtype.Uint32(n.ASN)
		}
		if err := tree.Insert(prefix, says); err != nil {
			return err
		}
	}
	passing, err := os.Create(file + ".new")
	if err != nil {
		return err
	}
	_, err = tree.WriteTo(passing)
	if closeErr := passing.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
