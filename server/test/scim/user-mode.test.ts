/** SCIM_MEMBERSHIP_USER_MODE of a whole server on SQLite. */
import { userMode } from './user-mode.ts';

userMode('sqlite');
