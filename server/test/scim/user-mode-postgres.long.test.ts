/** SCIM_MEMBERSHIP_USER_MODE of a whole server on PostgreSQL. */
import { userMode } from './user-mode.ts';

userMode('postgres');
