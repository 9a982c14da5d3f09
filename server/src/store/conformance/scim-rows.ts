/** One row for each table of provisioning, of an organisation; its user is `<name>-user`. */
export const scimRows = (name: string, organisation: string, at: { created_at: number; last_updated_at: number }) => {
  const own = { organisation_id: organisation };
  const made = { created_at: at.created_at };
  const group = `${name}-scim-group`;
  return {
    scim_tokens: {
      id: `${name}-scim-token`,
      ...own,
      name,
      public_id: `${name}-scim`,
      digest: `${name}-digest`,
      expires_at: null,
      created_by: `${name}-by`,
      ...made,
    },
    scim_users: {
      user_id: `${name}-user`,
      ...own,
      external_id: `${name}-external`,
      user_name: `${name}@example.com`,
      profile: { userName: `${name}@example.com`, emails: [{ value: `${name}@example.com`, primary: true }] },
      active: true,
      ...at,
    },
    scim_groups: {
      id: group,
      ...own,
      display_name: name,
      name_key: name,
      external_id: `${name}-group`,
      version: 1,
      ...at,
    },
    scim_group_members: { ...own, group_id: group, user_id: `${name}-user`, ...made },
  };
};
