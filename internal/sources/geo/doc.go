// SPDX-License-Identifier: Apache-2.0

// Package geo reads the addresses of countries and of autonomous systems from a database in MaxMind's format. It supports the fields of MaxMind's
// databases and of the common public ones. It does not fetch databases.
//
//	set, networks, err := geo.Read("country.mmdb", geo.Wanted{Countries: []string{"NL"}})
package geo
