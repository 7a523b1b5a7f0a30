// SPDX-License-Identifier: Apache-2.0

// Package schemas checks with a validator of others that the JSON which Floodwall reads and writes has the form that its schemas say: policies, answers
// of the API, and bills of materials. It does not make the schemas: tools/docs does.
//
//	err := schemas.CycloneDX(t).Validate(value)
package schemas
