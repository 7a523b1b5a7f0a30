// Package geo reads which addresses a database in MaxMind's format gives to countries and to autonomous systems. It does not
// matter who made the database: the fields are those that MaxMind's own have, or those of the public ones that are common. It fetches none.
//
//	set, networks, err := geo.Read("country.mmdb", geo.Wanted{Countries: []string{"NL"}})
package geo
